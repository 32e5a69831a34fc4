/**
 * The guard's script, for any POSIX shell. It reads `+<group>` and `-<group>`, one to a line. To `?<mark> <mark> …` it answers
 * with the processes that have one of these marks in their environment, one to a line, and a dot. When its input ends, it kills
 * the groups that are left and all their descendants, then exits. Nothing but that end makes it stop.
 *
 * Processes that left their group are found in /proc in three ways: as descendants of a group's leader; by the mark (`$1`) that
 * each server has in its environment and hands down, for the leader may be dead by then; and below a marked process, for some
 * overwrite their environment. Without /proc (macOS) only the groups are killed. The search repeats until it finds nobody,
 * because processes may have forked before they were killed.
 */
export const guardScript = `
trap '' HUP INT QUIT TERM PIPE
mark=$1
groups=' '
while read -r line; do
  group=\${line#?}
  case $line in
    +*) case $groups in *" $group "*) ;; *) groups="$groups$group " ;; esac ;;
    -*) case $groups in *" $group "*) groups="\${groups%%" $group "*} \${groups#*" $group "}" ;; esac ;;
    '?'*)
      set --
      for one in $group; do set -- "$@" -e "$one"; done
      for file in $(grep -lsF "$@" /proc/[0-9]*/environ); do
        found=\${file#/proc/}
        echo "\${found%/environ}"
      done
      echo .
      ;;
  esac
done

descend() {
  for list in /proc/"$1"/task/*/children; do
    children=
    read -r children <"$list"
    for child in $children; do
      doomed="$doomed $child"
      descend "$child"
    done
  done
}

rounds=0
while [ "$groups" != ' ' ] && [ $rounds -lt 100 ]; do
  rounds=$((rounds + 1))
  doomed=
  for group in $groups; do descend "$group"; done
  for file in $(grep -lsF -e "$mark" /proc/[0-9]*/environ); do
    marked=\${file#/proc/}
    marked=\${marked%/environ}
    doomed="$doomed $marked"
    descend "$marked"
  done
  for group in $groups; do kill -KILL -"$group"; done
  [ -z "$doomed" ] && break
  for process in $doomed; do kill -KILL "$process"; done
done
`
