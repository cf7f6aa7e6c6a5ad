where= # set by meeting
. "$SUITE/peers.bash"
$PYTHON "$TESTS/cli/replay/make_dense.py" ck
loadplan record --checkpoint ck --loader dense --tp 4 -q -o x.lpt
loadplan replay x.lpt --checkpoint ck -q -o want
for launcher in torchrun mpirun srun; do
    meeting
    before=$((${where#*:} - 1)) # ranks meet at the port behind the launcher's own
    for rank in 0 1 2 3; do
        place="--rendezvous $where"
        case $launcher in
        torchrun)
            say="RANK=$rank WORLD_SIZE=4 LOCAL_RANK=$rank MASTER_ADDR=127.0.0.1 MASTER_PORT=$before"
            place=
            ;;
        mpirun) say="OMPI_COMM_WORLD_RANK=$rank OMPI_COMM_WORLD_SIZE=4 OMPI_COMM_WORLD_LOCAL_RANK=$rank" ;;
        srun)
            say="SLURM_PROCID=$rank SLURM_STEP_NUM_TASKS=4 SLURM_LOCALID=$rank MASTER_PORT=$before
                 SLURM_STEP_NODELIST=localhost,node[03-07]"
            place=
            ;;
        esac
        env $say loadplan replay x.lpt --world --checkpoint ck -o "$launcher" $place 2>"$launcher$rank.log" &
    done
    wait
    for file in want/*; do cmp "$file" "$launcher/${file##*/}"; done
    ls "$launcher"
done
# Together they read little more than each byte once.
sed 's/ in .* s; read .* here,/:/' torchrun0.log
loadplan explain x.lpt --world --senders 2
echo "== one rank alone"
loadplan record --checkpoint ck --loader dense -q -o one.lpt
loadplan replay one.lpt --world --checkpoint ck -q -o alone
loadplan replay one.lpt --checkpoint ck -q -o want1
cmp want1/rank-00000.safetensors alone/rank-00000.safetensors
echo "== launchers that contradict themselves"
RANK=4 WORLD_SIZE=4 loadplan replay x.lpt --world --checkpoint ck -o bad 2>&1 || true
RANK=1 WORLD_SIZE=many loadplan replay x.lpt --world --checkpoint ck -o bad 2>&1 || true
