import { type ChildProcess, spawn } from 'node:child_process'
import { Socket } from 'node:net'
import { LineSplitter } from '../kit/index.ts'

/** A line of an answer is at most a line of /proc/<pid>/stat. */
const maxLineBytes = 4096
const endOfAnswer = '.'

/** One life of the guard's shell. It keeps our event loop alive only while we wait for its end, or for an answer. */
export class GuardShell {
  readonly #child: ChildProcess
  readonly #startedAt = performance.now()
  readonly gone: Promise<void>
  #answer: ((line: string | undefined) => void) | undefined

  constructor(tagPrefix: string, folderPrefix: string) {
    // A session of its own, so that Ctrl-C in our terminal does not reach it. It gets none of our secrets, and holds no folder.
    const child = spawn('/bin/sh', ['-c', guardScript, 'millrace-guard', tagPrefix, folderPrefix], {
      detached: true,
      stdio: ['pipe', 'pipe', 'ignore'],
      cwd: '/',
      env: { PATH: process.env['PATH'], LC_ALL: 'C' },
    })
    this.#child = child
    this.gone = new Promise((resolve) => {
      child.once('error', () => resolve())
      child.once('exit', () => resolve())
    })
    // A write to a dead shell already fails in `tell`; the event says the same again.
    child.stdin?.on('error', () => {})
    child.unref()
    if (child.stdin instanceof Socket) child.stdin.unref()
    const lines = new LineSplitter(maxLineBytes)
    child.stdout?.on('data', (chunk: Buffer) => {
      for (const line of lines.push(chunk)) this.#answer?.(line)
    })
    this.#refAnswers(false)
  }

  get ageMs(): number {
    return performance.now() - this.#startedAt
  }

  /** Resolves to whether the line was handed over. A line in the pipe will be read, even if we are dead by then. */
  tell(line: string): Promise<boolean> {
    const { stdin } = this.#child
    if (!stdin?.writable) return Promise.resolve(false)
    return new Promise((resolve) => {
      stdin.write(line, (error) => resolve(!error))
    })
  }

  /** The lines of the shell's answer to a question; undefined if the shell is gone. One question at a time. */
  async ask(question: string): Promise<string[] | undefined> {
    const lines: string[] = []
    const answered = new Promise<string[]>((resolve) => {
      this.#answer = (line) => {
        if (line === endOfAnswer) resolve(lines)
        else if (line !== undefined) lines.push(line)
      }
    })
    this.#refAnswers(true)
    try {
      if (!(await this.tell(question))) return undefined
      return await Promise.race([answered, this.gone.then(() => undefined)])
    } finally {
      this.#answer = undefined
      this.#refAnswers(false)
    }
  }

  #refAnswers(isAwaited: boolean): void {
    const { stdout } = this.#child
    if (!(stdout instanceof Socket)) return
    if (isAwaited) stdout.ref()
    else stdout.unref()
  }

  async end(): Promise<void> {
    this.#child.ref()
    this.#child.stdin?.end('!\n')
    await this.gone
  }
}

/**
 * The guard's script, for any POSIX shell. It reads `+<group>` and `-<group>`, one to a line. To `?<group>:<tag> …` it answers
 * with the live members of these groups, as lines of /proc/<pid>/stat, then with the processes that have one of these tags in
 * their environment, as `/proc/<pid>/environ:<tag>`, then with a dot. When its input ends, it kills the groups that are left and
 * all their descendants, removes the folders whose paths begin with `$2`, then exits. At `!` it just exits. Nothing else makes it
 * stop.
 *
 * Processes that left their group are found in /proc in three ways: as descendants of a group's leader; by the tag that each
 * process has in its environment and hands down, for the leader may be dead by then (all tags of a guard begin with `$1`); and
 * below a tagged process, for some overwrite their environment. Without /proc (macOS) only the groups are killed. The search
 * repeats until it finds nobody, because processes may have forked before they were killed.
 */
const guardScript = `
trap '' HUP INT QUIT TERM PIPE
prefix=$1
folders=$2
groups=' '
while read -r line; do
  group=\${line#?}
  case $line in
    '!') exit ;;
    +*) case $groups in *" $group "*) ;; *) groups="$groups$group " ;; esac ;;
    -*) case $groups in *" $group "*) groups="\${groups%%" $group "*} \${groups#*" $group "}" ;; esac ;;
    '?'*)
      set --
      members=
      for one in $group; do
        members="$members|\${one%%:*}"
        set -- "$@" -e "\${one#*:}"
      done
      grep -shE "^[0-9]+ \\(.*\\) [^ZX] [0-9]+ (\${members#?}) " /proc/[0-9]*/stat
      grep -aosHF "$@" /proc/[0-9]*/environ
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
  for file in $(grep -lsF -e "$prefix" /proc/[0-9]*/environ); do
    tagged=\${file#/proc/}
    tagged=\${tagged%/environ}
    doomed="$doomed $tagged"
    descend "$tagged"
  done
  for group in $groups; do kill -KILL -"$group"; done
  [ -z "$doomed" ] && break
  for process in $doomed; do kill -KILL "$process"; done
done
rm -rf -- "$folders"* || { chmod -R u+rwx -- "$folders"*; rm -rf -- "$folders"*; }
`
