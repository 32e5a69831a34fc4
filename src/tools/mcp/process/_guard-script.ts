/**
 * What the guard runs, in any POSIX shell. It reads `+<group>` and `-<group>`, one to a line. When its input ends, it kills
 * the groups that are left and all that descends from them, then exits. Nothing but that end makes it stop.
 *
 * Who left its group is found in /proc: as a descendant of a group's leader, or by the mark (`$1`) that each server is given
 * in its environment and hands down, for the leader may be dead by then, or below one that has the mark, for some write over
 * their environment. Without /proc (macOS) the groups alone are killed. It goes over them until it finds nobody, because
 * those it kills may have forked meanwhile.
 */
export const guardScript = `
trap '' HUP INT QUIT TERM
mark=$1
groups=' '
while read -r line; do
  group=\${line#?}
  case $line in
    +*) case $groups in *" $group "*) ;; *) groups="$groups$group " ;; esac ;;
    -*) case $groups in *" $group "*) groups="\${groups%%" $group "*} \${groups#*" $group "}" ;; esac ;;
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
