loadplan bench trace.opne || echo $?
loadplan bench || echo $?
loadplan bench trace.open --rounds=0 || echo $?
loadplan bench trace.open --folder=nowhere || echo $?
