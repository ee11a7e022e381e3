# The fixed part of the batch script of an attempt: POSIX sh, made for dash and for bash called as sh.
#
# The head before it has set: the command and its arguments as "$@", tg_here (the attempt's directory), tg_directory
# (where the command runs), tg_token, tg_of (what every record begins with), tg_grace and tg_look (seconds), tg_warning
# (a signal's name or nothing), tg_keep (not empty: the job may be queued again). Names that begin with tg_ are ours.
#
# A fork costs more than all the rest, so there are few: date, ln, the command, a sleep beside it, and one mv for what
# must be whole. So what nobody needs any more is left for who releases the attempt.

tg_claimed_elsewhere=75
tg_not_claimed=74
tg_pid= tg_over= tg_busy= tg_term= tg_warn= tg_nudge= tg_child= tg_cont=
tg_seen=null tg_seen_by=null tg_asked= tg_kill_ms= tg_due_ms= tg_sleeper= tg_stale=
tg_request='
' # what no line is

tg_say() {
    printf 'tidegate: %s\n' "$1" >&2
}

# A record, there whole or not at all. Not synced: a network file system has it on its server when it is renamed, and
# what a node's own disk loses with the node is told by Slurm.
tg_put() {
    printf '%s\n' "$2" >"$tg_here/.$1.$tg_mine" && mv -f -- "$tg_here/.$1.$tg_mine" "$tg_here/$1"
}

# Sets tg_ms, milliseconds since the epoch. One date tells the time; from then on a clock that nobody sets counts.
tg_clock() {
    if [ "$tg_base" ]; then
        read -r tg_up tg_rest </proc/uptime
        tg_ms=$((tg_base + ${tg_up%.*}${tg_up#*.}0))
    else
        tg_take_date "$(date +%s%3N)"
    fi
}

tg_take_date() {
    case $1 in
        *[!0-9]* | '') tg_ms=$(date +%s)000 ;;
        *) tg_ms=$1 ;;
    esac
}

# The environment

# Unsets what is exported, but for what Slurm has set; $1 is what `export -p` prints. A line of a value can look like a
# variable: then one that nobody needs is unset as well.
tg_forget() {
    set -f
    IFS='
'
    for tg_line in $1; do
        case $tg_line in
            'export '[A-Za-z_]*) tg_name=${tg_line#export } ;;
            'declare -x '[A-Za-z_]*) tg_name=${tg_line#declare -x } ;;
            'declare -fx '[!t]*) unset -f "${tg_line#declare -fx }"; continue ;;
            *) continue ;;
        esac
        tg_name=${tg_name%%=*}
        case $tg_name in
            SLURM_EXPORT_ENV) unset SLURM_EXPORT_ENV ;;
            SLURM_* | SLURMD_* | CUDA_VISIBLE_DEVICES | ROCR_VISIBLE_DEVICES | HIP_VISIBLE_DEVICES) ;;
            GPU_DEVICE_ORDINAL | ZE_AFFINITY_MASK | PATH | tg_* | *[!A-Za-z0-9_]*) ;;
            UID | EUID | PPID | SHELLOPTS | BASHOPTS | BASH_VERSINFO) ;;
            *) unset "$tg_name" ;;
        esac
    done
    set +f
    unset IFS
}

# The claim

# Link the temporary to the claim $1. Who holds it is told by what lies there, not by what ln says: the answer of a
# file server can get lost after it has made the link.
tg_link() {
    ln -- "$tg_temporary" "$tg_here/$1" 2>/dev/null
    [ "$tg_temporary" -ef "$tg_here/$1" ]
}

# Sets tg_holder, the restart that the claim $1 is of, where this very Slurm job took it; fails where it did not.
tg_read_claim() {
    tg_line=
    IFS= read -r tg_line 2>/dev/null <"$tg_here/$1"
    case $tg_line in
        "$tg_prefix"[0-9]*) ;;
        *) return 1 ;;
    esac
    tg_holder=${tg_line#"$tg_prefix"}
    tg_holder=${tg_holder%%[!0-9]*}
}

# Has a later run of this Slurm job taken a claim?
tg_superseded() {
    for tg_file in "$tg_here"/claim.*; do
        tg_number=${tg_file##*/claim.}
        case $tg_number in
            '' | *[!0-9]*) continue ;;
        esac
        [ "$tg_number" -gt "$tg_restart" ] && tg_read_claim "claim.$tg_number" && return 0
    done
    return 1
}

# Take the claim, the one step that makes a command run once only. Does not return without it.
tg_claim() {
    tg_clock
    tg_temporary=$tg_here/.claim.$tg_mine
    set -C
    if ! printf '%s\n' "$tg_prefix$tg_restart,$tg_node\"claimed_ms\":$tg_ms}" >"$tg_temporary"; then
        tg_say "no claim can be written in $tg_here: nothing is run"
        exit "$tg_not_claimed"
    fi
    set +C
    tg_link claim && return
    if tg_read_claim claim; then
        if [ "$tg_holder" -lt "$tg_restart" ] && tg_link "claim.$tg_restart" && ! tg_superseded; then
            return
        fi
        tg_say "another run of this Slurm job has the claim of $tg_here: nothing is run"
        exit "$tg_claimed_elsewhere"
    fi
    if [ -e "$tg_here/claim" ] || [ -L "$tg_here/claim" ]; then
        tg_keep=
        tg_tidy
        tg_say "another submission has the claim of $tg_here: nothing is run"
        exit "$tg_claimed_elsewhere"
    fi
    tg_say "no link can be made in $tg_here: nothing is run"
    exit "$tg_not_claimed"
}

# The values are in memory now. Emptied, not removed: that costs no fork.
tg_tidy() {
    [ "$tg_keep" ] || ! [ -f "$tg_here/env.$tg_token" ] || true >"$tg_here/env.$tg_token"
}

# The end

# Does not return. $1 whether the command ran, $2 its code, $3 its signal, $4 the reason, "null" for what is not so;
# $5 how this script ends.
tg_end() {
    tg_over=1
    [ "$4" = null ] || set -- "$1" "$2" "$3" "\"$4\"" "$5"
    [ "$1" = true ] || tg_started=null tg_duration=0
    tg_exit="{$tg_id\"ran\":$1,\"code\":$2,\"signal\":$3,\"reason\":$4,\"started_ms\":$tg_started,\"ended_ms\":$tg_ms"
    tg_exit="$tg_exit,\"duration_ms\":$tg_duration,\"stop_seen_ms\":$tg_seen,\"stop_seen_by\":$tg_seen_by}"
    # A full disk may have room in a moment; for ever it must not keep a node.
    for tg_try in 1 2 3 4 5; do
        tg_put "exit.$tg_restart.json" "$tg_exit" && break
        sleep 1
    done
    if [ "$3" != null ]; then
        # Slurm is to see the signal, too. What does not kill a shell is told as a code.
        trap - HUP INT QUIT TERM USR1 USR2 CHLD CONT
        kill -"$3" "$$"
    fi
    exit "$5"
}

tg_never_ran() {
    tg_clock
    tg_tidy
    tg_end false "$2" null "$1" "$2"
}

# While the command runs

tg_pass() {
    kill -s "$1" -- "-$tg_pid" 2>/dev/null || kill -s "$1" "$tg_pid" 2>/dev/null
    case $1 in
        KILL | CONT) ;;
        *) kill -s CONT -- "-$tg_pid" 2>/dev/null ;; # one that was stopped hears of it only then
    esac
}

# The first time that an end was asked for: recorded before anything is done about it.
tg_see() {
    [ "$tg_seen" = null ] || return 0
    tg_clock
    tg_seen=$tg_ms tg_seen_by="\"$1\""
    [ "$tg_pid" ] && tg_put "stop_seen.$tg_restart.json" "{$tg_id\"stop_seen_ms\":$tg_seen,\"by\":$tg_seen_by}"
}

# Reads a stop request that was not read before into tg_word, tg_signal, tg_seconds; fails where there is none.
tg_read_request() {
    [ -f "$tg_here/stop" ] || return 1
    tg_line=
    IFS= read -r tg_line 2>/dev/null <"$tg_here/stop"
    [ "$tg_line" != "$tg_request" ] || return 1
    tg_request=$tg_line
    tg_word=${tg_line%% *} tg_rest=${tg_line#* }
    tg_signal=${tg_rest%% *} tg_rest=${tg_rest#* }
    tg_seconds=${tg_rest%% *}
    case $tg_word/$tg_signal/$tg_seconds in
        stop/[A-Z]*/[0-9]* | pause/[A-Z]*/[0-9]*) ;;
        *) tg_signal='?' ;;
    esac
    case $tg_signal$tg_seconds in
        *[!A-Z0-9]*) tg_word=stop tg_signal=TERM tg_seconds=$tg_grace ;; # somebody wants its end, that much is sure
    esac
}

# A stop takes over from a pause, and a pause never from a stop; of two of a kind the earlier deadline counts.
tg_heed_request() {
    tg_read_request || return 0
    [ "$tg_word/$tg_asked" != pause/stop ] || return 0
    if [ "$tg_seen" = null ] && IFS= read -r tg_line 2>/dev/null <"/proc/$tg_pid/stat"; then
        case ${tg_line##*\)} in
            ' Z'*) return 0 ;; # it had ended by itself before it was told
        esac
    fi
    tg_see request
    tg_clock
    tg_deadline_ms=$((tg_ms + tg_seconds * 1000))
    if [ "$tg_word" != "$tg_asked" ] || [ "$tg_deadline_ms" -lt "$tg_kill_ms" ]; then
        tg_kill_ms=$tg_deadline_ms
    fi
    tg_asked=$tg_word
    if [ "$tg_seconds" -gt 0 ]; then
        tg_pass "$tg_signal"
    fi
}

# What is due now, and a sleep until something is due next.
tg_turn() {
    if tg_superseded; then
        tg_stale=1
        tg_pass KILL
    fi
    tg_heed_request
    tg_clock
    if [ "$tg_kill_ms" ] && [ "$tg_ms" -ge "$tg_kill_ms" ]; then
        tg_pass KILL
        tg_kill_ms=$((tg_ms + 1000))
    fi
    tg_wake
    tg_sleep
}

tg_wake() {
    [ "$tg_ms" -lt "$tg_due_ms" ] || return 0
    kill -s KILL -- "-$tg_sleeper" 2>/dev/null || kill -s KILL "$tg_sleeper" 2>/dev/null
    wait "$tg_sleeper" 2>/dev/null
}

tg_sleep() {
    tg_due_ms=$((tg_ms + tg_look * 1000))
    if [ "$tg_kill_ms" ] && [ "$tg_kill_ms" -lt "$tg_due_ms" ]; then
        tg_due_ms=$tg_kill_ms
    fi
    tg_ahead=$(((tg_due_ms - tg_ms + 999) / 1000))
    if [ "${BASH_VERSION-}" ]; then
        set -m
        { sleep "$tg_ahead"; kill -s USR2 "$$"; } </dev/null >/dev/null 2>&1 &
        tg_sleeper=$!
        set +m
    else
        sleep "$tg_ahead" </dev/null >/dev/null 2>&1 &
        tg_sleeper=$!
    fi
}

# A trap can come in the middle of another one: it leaves its mark, and the one below takes care of it.
tg_heed() {
    [ "$tg_pid" ] && [ -z "$tg_over$tg_busy" ] || return 0
    while [ "$tg_term$tg_warn$tg_nudge$tg_child$tg_cont" ]; do
        tg_busy=1
        trap - CHLD
        if [ "$tg_term" ]; then
            # Slurm sends it for scancel, a limit, a preemption, and follows it with KILL by itself.
            tg_term= tg_nudge=1
            tg_see signal
            tg_pass TERM
        fi
        if [ "$tg_warn" ]; then
            tg_warn=
            [ "$tg_warning" ] && tg_pass "$tg_warning"
        fi
        if [ "$tg_cont" ]; then
            tg_cont=
            tg_pass CONT
        fi
        tg_child=
        if [ "$tg_nudge" ]; then
            tg_nudge=
            tg_turn
        fi
        trap "$tg_on_child" CHLD
        tg_clock
        [ "$tg_ms" -lt "$tg_due_ms" ] || tg_nudge=1 # the sleep ended meanwhile, and nobody was told
        tg_busy=
    done
}

# Sets tg_reason and tg_code where the program $1 cannot be started as things are.
tg_look_up() {
    tg_reason=command_not_found tg_code=127
    case $1 in
        */*) tg_try_program "$1" ;;
        *)
            set -f
            IFS=:
            for tg_place in $tg_path; do
                tg_try_program "${tg_place:-.}/$1"
                [ "$tg_reason" ] || break
            done
            set +f
            unset IFS
            ;;
    esac
}

tg_try_program() {
    if [ -f "$1" ] && [ -x "$1" ]; then
        tg_reason= tg_program=$1
    elif [ -e "$1" ] || [ -L "$1" ]; then
        tg_reason=cannot_execute tg_code=126
    fi
}

# Is there no interpreter as the first line of the program names it? A shell says no more than 126 or 127.
tg_is_without_interpreter() {
    tg_line=
    IFS= read -r tg_line 2>/dev/null <"$tg_program"
    case $tg_line in
        '#!'*) ;;
        *) return 1 ;;
    esac
    tg_line=${tg_line#'#!'}
    tg_line=${tg_line#"${tg_line%%[! 	]*}"}
    ! [ -x "${tg_line%%[ 	]*}" ]
}

# In the child: a process group of its own, INT and QUIT as they were (a shell ignores them for what it does not wait
# for at once), then the command itself. tg_go, of the environment's file, comes here.
tg_exec() {
    [ -z "${BASH_VERSION-}" ] || exec -- "$@"
    [ "$tg_setsid" ] || exec "$@"
    case $1 in
        *=*) ;; # env would take it for a variable
        *) [ -z "$tg_env" ] || exec "$tg_setsid" -- "$tg_env" --default-signal=INT,QUIT -- "$@" ;;
    esac
    exec "$tg_setsid" -- "$@"
}

tg_start() {
    [ "${BASH_VERSION-}" ] && set -m
    tg_go "$@" </dev/null >>"$tg_here/logs/stdout" 2>>"$tg_here/logs/stderr" &
    tg_pid=$!
    set +m
}

# Returns when it is reaped. A trap ends a wait early.
tg_await() {
    while :; do
        # bash reaps it before a wait: then jobs is to be asked first, as after a wait that a trap has ended.
        tg_status=145
        [ -z "${BASH_VERSION-}" ] || kill -s 0 "$tg_pid" 2>/dev/null || break
        wait "$tg_pid"
        tg_status=$?
        kill -s 0 "$tg_pid" 2>/dev/null || break
    done
}

# Sets tg_code where what jobs has told says that it ended with one.
tg_read_jobs() {
    while IFS= read -r tg_line; do
        case $tg_line in
            *" $tg_pid Done("*)
                tg_code=${tg_line#*" $tg_pid Done("}
                tg_code=${tg_code%%")"*}
                ;;
            *" $tg_pid Done"*) tg_code=0 ;;
            # bash has reaped it and does not know: seen once in sixty storms of signals. It must not look like an end.
            *" $tg_pid Running"*) tg_reason=supervisor_failed tg_code=126 ;;
        esac
    done <"$tg_scratch"
}

# The run

trap 'tg_term=1; tg_heed' TERM
trap 'tg_warn=1; tg_heed' USR1
trap 'tg_nudge=1; tg_heed' USR2
trap 'tg_cont=1; tg_heed' CONT
# A child's end ends a wait, so that jobs can be asked before a wait has the answer. What bash does in this very trap
# makes it forget how a child ended, so there a timer sends a signal.
tg_on_child='tg_child=1; tg_heed'
[ -z "${BASH_VERSION-}" ] || tg_on_child=:
trap "$tg_on_child" CHLD
trap : HUP INT QUIT
umask 077
ulimit -c 0
unset IFS LD_PRELOAD LD_LIBRARY_PATH ENV BASH_ENV TMPDIR tg_path
PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
export PATH

tg_job=${SLURM_JOB_ID-} tg_restart=${SLURM_RESTART_COUNT:-0} tg_node=${SLURMD_NODENAME-}
case $tg_job/$tg_restart in
    /* | *[!0-9A-Za-z_.+/-]* | */*[!0-9]*)
        tg_say 'not in a job of Slurm: SLURM_JOB_ID is not set, or is not what Slurm sets'
        exit "$tg_not_claimed"
        ;;
esac
case $tg_node in
    *[!0-9A-Za-z_.-]*) tg_node= ;;
esac
tg_mine=$tg_token.$tg_job.$tg_restart.$tg_node.$$
tg_node="\"node\":\"$tg_node\","
tg_prefix="{$tg_of,\"slurm_job_id\":\"$tg_job\",\"restart\":"
tg_id=${tg_prefix#?}$tg_restart,$tg_node

tg_env= tg_setsid= tg_base=
if [ "${BASH_VERSION-}" ]; then
    tg_exported=$(export -p; declare -Fx; exec date +%s%3N)
else
    for tg_place in /usr/bin /bin; do
        [ "$tg_setsid" ] || ! [ -x "$tg_place/setsid" ] || tg_setsid=$tg_place/setsid
        [ "$tg_env" ] || ! [ -x "$tg_place/env" ] || tg_env=$tg_place/env
    done
    tg_exported=$(export -p; exec date +%s%3N)
fi
tg_forget "$tg_exported"
tg_take_date "${tg_exported##*
}"
if [ -r /proc/uptime ]; then
    tg_now=$tg_ms
    read -r tg_up tg_rest </proc/uptime
    tg_base=$((tg_now - ${tg_up%.*}${tg_up#*.}0))
fi

tg_claim
if [ -r "$tg_here/env.$tg_token" ]; then
    . "$tg_here/env.$tg_token"
fi
if [ -e "$tg_here/revoked" ] || [ -L "$tg_here/revoked" ]; then
    tg_never_ran revoked 75
fi
if [ "$tg_term" ] || [ -f "$tg_here/stop" ]; then
    [ "$tg_term" ] && tg_see signal || tg_see request
    tg_never_ran stopped_before_start 75
fi
[ "${tg_path+set}" ] || tg_never_ran environment_missing 126
[ -d "$tg_here/logs" ] && [ -d "$tg_here/home" ] || mkdir -p -- "$tg_here/logs" "$tg_here/home"
true >>"$tg_here/logs/stdout" && true >>"$tg_here/logs/stderr" || tg_never_ran supervisor_failed 126
if ! cd -- "$tg_directory"; then
    [ -d "$tg_directory" ] && tg_never_ran working_directory_unreachable 126
    tg_never_ran working_directory_missing 126
fi
tg_look_up "$1"
[ "$tg_reason" ] && tg_never_ran "$tg_reason" "$tg_code"

unset OLDPWD

tg_tidy
tg_clock
tg_started=$tg_ms
# One write of a few bytes. Who reads it before that takes it for no record.
printf '%s\n' "{$tg_id\"started_ms\":$tg_started}" >"$tg_here/started.$tg_restart.json"
tg_sleep
tg_start "$@"
tg_heed # what has come since the look at the stop request
tg_await
if [ "$tg_status" -eq 125 ] && [ "$tg_env" ] && ! "$tg_env" --default-signal=INT,QUIT true 2>/dev/null; then
    # It was env that failed, before the command: one that does not know the option. Then INT and QUIT stay ignored.
    tg_env=
    tg_start "$@"
    tg_await
fi
tg_clock
trap '' HUP INT QUIT TERM USR1 USR2 CONT
trap - CHLD
tg_duration=$((tg_ms > tg_started ? tg_ms - tg_started : 0))
tg_over=1

# It is reaped. What wait said may have been a trap's, and says not whether 137 was a code or a signal; jobs does. bash
# forgets a job that was waited for, dash one that jobs has shown. Where it has been forgotten, 137 was a signal.
tg_code=$tg_status tg_killed_by=null tg_reason=null
if [ "$tg_status" -gt 128 ]; then
    tg_scratch=$tg_here/.exit.$tg_restart.json.$tg_mine
    tg_code=null
    if [ "${BASH_VERSION-}" ]; then
        jobs -l >"$tg_scratch"
        tg_read_jobs
    fi
    if [ "$tg_reason" = null ]; then
        wait "$tg_pid" 2>/dev/null
        tg_again=$?
        [ "$tg_again" -eq 127 ] || tg_status=$tg_again
    fi
    if [ -z "${BASH_VERSION-}" ]; then
        jobs -l >"$tg_scratch"
        tg_read_jobs
    fi
    if [ "$tg_code" = null ]; then
        tg_killed_by=$((tg_status - 128))
    else
        tg_status=$tg_code
    fi
fi

tg_wake
kill -s KILL -- "-$tg_pid" 2>/dev/null
if [ "$tg_stale" ]; then
    tg_reason=superseded
elif { [ "$tg_status" -eq 126 ] || [ "$tg_status" -eq 127 ]; } && tg_is_without_interpreter; then
    tg_never_ran cannot_execute 126
fi
tg_end true "$tg_code" "$tg_killed_by" "$tg_reason" "$tg_status"
