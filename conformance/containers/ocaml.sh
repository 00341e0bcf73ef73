#!/bin/sh
# OCaml's uring, by the interpreter: no compiler is needed.
set -eu
cd "${CHECK_FOLDER:-/data}"
set --
for folder in /usr/lib/*/ocaml/*/; do
    for library in unix cstruct fmt optint uring; do
        set -- "$@" -I "$folder$library"
    done
done
exec ocaml "$@" -I +unix unix.cma optint.cma fmt.cma cstruct.cma uring.cma /check/uring.ml
