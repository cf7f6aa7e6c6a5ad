# The whole of what each command says about itself: a change of an option or a sentence shows in the golden file.
loadplan help
for command in $(loadplan help --format=names); do
    echo
    echo "==== $command"
    loadplan help "$command"
done
