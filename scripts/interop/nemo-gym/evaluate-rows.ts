import { mkdir, readFile, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { check } from '../part.ts'
import { runProgram } from '../run-program.ts'

export const millraceProgram = join(import.meta.dirname, '..', '..', '..', 'bin', 'millrace.js')
const evalMs = 5 * 60_000

/** A rollout of `millrace export`. */
export interface Exported {
  readonly id: string
  readonly task: { readonly index: number }
  readonly sample: number
  readonly reward: number | null
  readonly outcome: string
  readonly usage: { readonly inputTokens: number; readonly outputTokens: number }
  readonly messages: readonly ExportedMessage[]
}

interface ExportedMessage {
  readonly role: string
  readonly content: string | null
  readonly tool_calls?: readonly { readonly function: { readonly name: string; readonly arguments: string } }[]
}

interface EvaluatedRows {
  /** The name of the run. */
  readonly run: string
  readonly folder: string
  /** The configuration, and where its servers are. */
  readonly words: readonly string[]
  readonly rows: readonly string[]
  /** The address of the model. */
  readonly model: string
  readonly attempts?: number
}

/** `millrace eval --nemo-gym` with these rows, and what `millrace export` tells of it. */
export async function evaluateRows(options: EvaluatedRows): Promise<Exported[]> {
  const { run, folder, words, rows, model, attempts = 1 } = options
  const input = await writeLines(join(folder, `${run}.jsonl`), rows)
  const output = join(folder, `${run}-rollouts.jsonl`)
  const named = ['-m', 'mock', '--base-url', model, '-n', String(attempts), '--run', run]
  await millrace(folder, 'eval', '--nemo-gym', ...words, '-i', input, ...named)
  await millrace(folder, 'export', run, '-o', output)
  return await readLines<Exported>(output)
}

async function millrace(folder: string, ...words: readonly string[]): Promise<void> {
  const runs = join(folder, 'runs')
  await mkdir(runs, { recursive: true })
  const all = [millraceProgram, ...words, '--runs', runs]
  check(await runProgram(process.execPath, all, { cwd: folder, timeoutMs: evalMs }), `millrace ${words[0]} failed`)
}

export async function writeLines(path: string, lines: readonly string[]): Promise<string> {
  await writeFile(path, lines.map((each) => `${each}\n`).join(''))
  return path
}

export async function readLines<Line>(path: string): Promise<Line[]> {
  const text = await readFile(path, 'utf8')
  return text
    .trimEnd()
    .split('\n')
    .map((line) => JSON.parse(line) as Line)
}
