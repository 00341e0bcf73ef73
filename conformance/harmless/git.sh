# git: clone, commit, rebase, gc, and its children (hooks, pagers, pack-objects).
. "$(dirname "$0")/lib.sh" "$1" "$2"
export HOME=$PWD GIT_CONFIG_NOSYSTEM=1
export GIT_AUTHOR_NAME=A GIT_AUTHOR_EMAIL=a@example.com GIT_COMMITTER_NAME=A GIT_COMMITTER_EMAIL=a@example.com
export GIT_AUTHOR_DATE='2001-02-03T04:05:06Z' GIT_COMMITTER_DATE='2001-02-03T04:05:06Z'
git config --global init.defaultBranch main
git config --global protocol.file.allow always
git init -q source
cd source
for n in 1 2 3 4 5; do
	seq $n 200 > file-$n
	git add file-$n
	git commit -q -m "commit $n"
done
git checkout -q -b topic HEAD~2
seq 300 > topic
git add topic
git commit -q -m topic
printf '#!/bin/sh\necho hook >> hooks.txt\n' > .git/hooks/post-checkout
chmod +x .git/hooks/post-checkout
git rebase -q main
cd ..
git clone -q --no-local source clone
git -C clone gc -q --aggressive
git -C clone fsck --strict
git -C source stash list
outcome git -C clone log --all --format='%H %s'
outcome git -C clone count-objects
outcome git -C clone grep -c 200
outcome git -C source cat-file -p HEAD^{tree}
outcome cat source/hooks.txt
outcome git -C clone checkout -q no-such-branch
