# What a bench needs runs before it and leaves no line.
loadplan bench trace.open --small --rounds 1 --folder .
ls
