loadplan layout | grep -c .
loadplan layout | grep '^nvfp4_l1_scale '
loadplan layout --format=json | grep -c '"id"'
