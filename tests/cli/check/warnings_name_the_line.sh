. "$SUITE/twin.bash"
write_good
twin warn 's/^(copy .*experts.1.up.*)$/\1 flags=materialises/'
loadplan check warn.lpt
loadplan check warn.lpt --fail-on=warn && exit 9
loadplan check warn.lpt --rule materialises=allow
