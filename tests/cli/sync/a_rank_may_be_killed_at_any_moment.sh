# One moment of each kind; what must hold does not depend on when it is. By hand, with more: kill_ranks.py --runs 50 --seed 3
LOADPLAN=$(command -v loadplan)
export LOADPLAN
$PYTHON "$SUITE/kill_ranks.py" --runs 1 --modes delta,served,cold --late 1 >kills.log 2>&1 || cat kills.log
