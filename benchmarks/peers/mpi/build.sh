#!/bin/sh
# Builds peer.c with one MPI library's compiler wrapper: sh build.sh openmpi|mpich OUTPUT
set -eu
lib=$1 out=$2
cd "$(dirname "$0")"
case $lib in
openmpi) packages="openmpi-bin libopenmpi-dev" ;;
mpich) packages="mpich libmpich-dev" ;;
*)
	echo "build.sh: $lib: use openmpi or mpich" >&2
	exit 2
	;;
esac
for tool in "mpicc.$lib" "mpirun.$lib"; do
	command -v "$tool" >/dev/null || {
		echo "build.sh: no $tool; on Debian and Ubuntu: sudo apt-get install gcc $packages" >&2
		exit 3
	}
done
exec "mpicc.$lib" -std=c11 -O2 -Wall -Wextra -o "$out" peer.c -lm
