#!/bin/bash
# Prints the commit that a bundle is built from. With changes that no commit has it fails, because nobody could build the same
# bundle again; ALLOW_DIRTY=1 marks the version with -dirty instead. What is not tracked does not count.
set -euo pipefail
cd "$(dirname "$0")/.."
version=$(git describe --always --dirty 2>/dev/null || echo unknown)
if [[ $version == *-dirty && ${ALLOW_DIRTY:-} != 1 ]]; then
	echo "$version: commit first, or set ALLOW_DIRTY=1 for a trial whose results are not kept. Changed:" >&2
	git status --short --untracked-files=no >&2
	exit 1
fi
echo "$version"
