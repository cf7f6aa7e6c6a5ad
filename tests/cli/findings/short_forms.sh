. "$SUITE/changed.bash"
loadplan diff good.lpt pr.lpt --stat && exit 9
loadplan diff good.lpt pr.lpt --numstat && exit 9
loadplan diff good.lpt pr.lpt --name-only && exit 9
loadplan diff good.lpt pr.lpt --name-only -z | tr '\0' ';' && echo
loadplan check pr.lpt --numstat --exit-zero
loadplan check pr.lpt --stat --name-only && exit 9
loadplan check pr.lpt --stat --format=json
