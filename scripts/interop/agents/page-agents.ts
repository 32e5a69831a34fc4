import assert from 'node:assert/strict'
import { mkdir, readFile, symlink, writeFile } from 'node:fs/promises'
import { delimiter, join } from 'node:path'
import { type MarkedBlock, markedBlocks, page } from '../../../test/support/pages.ts'
import type { Bench } from '../bench.ts'
import { runProgram } from '../run-program.ts'
import { tokenSummary } from '../token-record.ts'

const agentMs = 180_000

/** How an agent of the page is tried: what it is told to do, and what it leaves behind. */
interface Trial {
  /** The task, in a form that the simulator does as it is told. Code of the page asks for 12 * 34. */
  readonly task?: (folder: string) => string
  /** What it must print. */
  readonly says?: string
  /** Files that the task makes. */
  readonly files?: Readonly<Record<string, string>>
  /** Training rows: one for a conversation, one more for a title that it asks for beside it. */
  readonly rows?: number
  /** The most calls that one reply has. */
  readonly callsAtOnce?: number
}

const files = { 'a.txt': 'one\n', 'b.txt': 'two\n', 'c.txt': 'two\none\n' }

/** Three turns with calls, the first with two at once. */
const steps = 'Run `echo one > a.txt` and `echo two > b.txt`\nRun `cat a.txt b.txt`\nRun `cat b.txt a.txt > c.txt`'
const plain: Trial = { task: () => `Do this.\n${steps}`, files, callsAtOnce: 2 }

/** The same with tools of Claude Code's own, in calls that it changes before it sends them back. */
function editingTask(folder: string): string {
  const write = { file_path: join(folder, 'd.txt'), content: 'three  \nfour\n' }
  const edit = { file_path: join(folder, 'd.txt'), old_string: 'four', new_string: 'five' }
  const bash = { command: `cd ${folder} && cat d.txt` }
  return [
    plain.task?.(folder),
    `Call \`Write\` with \`${JSON.stringify(write)}\` and \`Bash\` with \`{"command":"true"}\``,
    `Call \`Edit\` with \`${JSON.stringify(edit)}\``,
    `Call \`Bash\` with \`${JSON.stringify(bash)}\``,
  ].join('\n')
}

/** The same in the JavaScript that Codex's own models write. */
function scriptedTask(): string {
  const exec = (command: string): string => `tools.exec_command({ cmd: '${command}' })`
  const both = `await Promise.all([${exec('echo one > a.txt')}, ${exec('echo two > b.txt')}])`
  return `Do this.\nRun \`${both}\`\nRun \`text((await ${exec('cat b.txt a.txt > c.txt && echo made')}).output)\``
}

const trials: Readonly<Record<string, Trial>> = {
  'Claude Code': { ...plain, task: editingTask, files: { ...files, 'd.txt': 'three\nfive\n' } },
  Codex: { ...plain, task: scriptedTask, callsAtOnce: 1, says: 'made' },
  'Codex -m policy': plain,
  opencode: { ...plain, rows: 2 },
  'mini-swe-agent': {
    ...plain,
    task: () => `\n${steps}\nRun \`echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT\``,
  },
}
const calculated: Trial = { says: '408' }

const runners: Readonly<Record<string, readonly [file: string, program: string]>> = {
  sh: ['agent.sh', 'sh'],
  python: ['agent.py', 'python'],
  js: ['agent.mjs', process.execPath],
}

export interface PageAgentsOptions {
  readonly bench: Bench
  /** Where programs are found, before those of the machine. */
  readonly paths: readonly string[]
  /** The packages that code of the page imports. */
  readonly modules: string
  readonly folder: string
}

/** Every agent of the page, as a case that says what was recorded of it. */
export async function pageAgents(options: PageAgentsOptions): Promise<{ name: string; run: () => Promise<string> }[]> {
  const { text } = await page('docs/agents-outside.md')
  return markedBlocks(text, 'agent').map((block) => ({ name: block.argument, run: () => tryAgent(block, options) }))
}

async function tryAgent({ argument, language, code }: MarkedBlock, options: PageAgentsOptions): Promise<string> {
  const trial = trials[argument] ?? calculated
  const { bench } = options
  const session = await bench.startSession()
  const home = join(options.folder, argument.replaceAll(' ', '-'))
  const cwd = join(home, 'work')
  await mkdir(cwd, { recursive: true })
  await symlink(options.modules, join(home, 'node_modules'))
  const [file, program] = runners[language] ?? ['', '']
  await writeFile(join(home, file), code.replaceAll('http://localhost:8787', bench.url))
  // Nothing of this machine's configuration counts, and nothing is left behind: the environment has what the page names.
  const env = {
    PATH: [...options.paths, process.env['PATH']].join(delimiter),
    HOME: home,
    TMPDIR: home,
    SESSION_KEY: session.key,
    TASK: trial.task?.(cwd) ?? '',
  }
  const { code: exit, output } = await runProgram(program, [join(home, file)], { cwd, env, timeoutMs: agentMs })
  assert.equal(exit, 0, `it ended with ${exit}:\n${output}`)
  assert.ok(output.includes(trial.says ?? ''), `it did not say ${trial.says}:\n${output}`)
  for (const [name, content] of Object.entries(trial.files ?? {})) {
    assert.equal(await readFile(join(cwd, name), 'utf8').catch(String), content, `${name} is not right:\n${output}`)
  }
  const record = {
    recorded: await bench.interactions(session.id),
    emitted: await bench.emitted(session.id),
    rows: await bench.mergedRows(session.id),
  }
  return tokenSummary(record, trial)
}
