. "$SUITE/changed.bash"
# What is printed can be committed once the reasons are written, and then accepts exactly this.
loadplan diff good.lpt pr.lpt --format=suppress > accepted && exit 9
cat accepted
loadplan diff good.lpt pr.lpt --suppressions accepted && exit 9
sed -i 's/ TODO$/ the new engine takes the maximum itself/' accepted
loadplan diff good.lpt pr.lpt --suppressions accepted
loadplan diff good.lpt pr.lpt --suppressions accepted -v
echo 'new_refusal layers.* was fixed long ago' >> accepted
echo 'dest_uncovered layers.* is for check' >> accepted
loadplan diff good.lpt pr.lpt --suppressions accepted
loadplan diff good.lpt pr.lpt --suppressions missing
