loadplan bench trace.opne || echo $?
loadplan bench || echo $?
test -n "$(loadplan bench --list | grep "^megamoe\.")" || loadplan bench megamoe 2>&1 | grep -q "need a build with CUDA"
loadplan bench trace.open --rounds=0 || echo $?
loadplan bench trace.open --folder=nowhere || echo $?
