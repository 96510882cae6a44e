#!/bin/sh
# Builds peer.c with one MPI library's compiler wrapper: sh build.sh openmpi|mpich OUTPUT
# Where there is only one library, its tools need not be named after it.
set -eu
lib=$1 out=$2
cd "$(dirname "$0")"
case $lib in
openmpi) packages="openmpi-bin libopenmpi-dev" banner="Open MPI" ;;
mpich) packages="mpich libmpich-dev" banner="HYDRA" ;;
*)
	echo "build.sh: $lib: use openmpi or mpich" >&2
	exit 2
	;;
esac
if command -v "mpicc.$lib" >/dev/null && command -v "mpirun.$lib" >/dev/null; then
	exec "mpicc.$lib" -std=c11 -O2 -Wall -Wextra -o "$out" peer.c -lm
fi
if command -v mpicc >/dev/null && command -v mpirun >/dev/null; then
	case $(mpirun --version) in
	*"$banner"*) exec mpicc -std=c11 -O2 -Wall -Wextra -o "$out" peer.c -lm ;;
	esac
fi
echo "build.sh: no mpicc and mpirun of $lib; on Debian and Ubuntu: sudo apt-get install gcc $packages" >&2
exit 3
