loadplan completion bash >bash.sh
. ./bash.sh
COMP_WORDS=(loadplan rep) COMP_CWORD=1
_loadplan
echo "${COMPREPLY[*]}"
COMP_WORDS=(loadplan check --fail) COMP_CWORD=2
compopt() { :; }
_loadplan
echo "${COMPREPLY[*]}"
