loadplan layout nvfp4_packed_l1_scale --format=svg --shape H=4096,I=2176 -o x.svg || code=$?
test ! -e x.svg
test ! -e x.svg.partial
exit $code
