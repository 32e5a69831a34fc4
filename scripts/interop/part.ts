import { mkdir } from 'node:fs/promises'
import { join } from 'node:path'
import { runProgram } from './run-program.ts'

/** A part of `npm run interop`. It has a folder of its own, which is removed when it ends. */
export type Part = (folder: string) => Promise<Counts>

export interface Counts {
  readonly passed: number
  readonly failed: number
}

export const installMs = 15 * 60_000

/** Installs packages of PyPI into a virtual environment in this folder. Returns its Python. `base` is the Python that makes it. */
export async function installPython(folder: string, requirements: string, base = 'python3'): Promise<string> {
  const venv = join(folder, 'venv')
  await mkdir(folder, { recursive: true })
  const made = await runProgram(base, ['-m', 'venv', venv], { timeoutMs: installMs })
  check(made, 'there is no python3 with venv here; install it (python3, python3-venv)')
  const python = join(venv, 'bin', 'python')
  const pip = ['-m', 'pip', 'install', '--quiet', '--disable-pip-version-check', '-r', requirements]
  check(
    await runProgram(python, pip, { timeoutMs: installMs }),
    'pip could not install; check that it reaches PyPI or its mirror',
  )
  return python
}

/** Throws if a program failed, with its output and what to do. */
export function check(
  { code, output }: { readonly code: number | null; readonly output: string },
  message: string,
): void {
  if (code !== 0) throw new Error(`${output}\n${message}, then run this again`)
}

/** Runs a program that prints a line for each case and, as its last line, the sums. */
export async function runCases(
  program: string,
  words: readonly string[],
  options: { readonly timeoutMs: number; readonly env?: NodeJS.ProcessEnv },
): Promise<Counts> {
  const { code, output } = await runProgram(program, words, { ...options, isShown: true })
  const [, passed = '0', failures = '0'] = /^(\d+) passed, (\d+) failed$/m.exec(output) ?? []
  const counts = { passed: Number(passed), failed: Number(failures) }
  return code !== 0 && counts.failed === 0 ? { ...counts, failed: 1 } : counts
}

/** Runs one case; its text says what it found. */
export async function runCase(name: string, run: () => Promise<string>): Promise<Counts> {
  try {
    say(`  ok      ${name}: ${await run()}`)
    return { passed: 1, failed: 0 }
  } catch (error) {
    say(`  FAILED  ${name}\n${error instanceof Error ? error.message : String(error)}`)
    return { passed: 0, failed: 1 }
  }
}

export function sumOf(counts: readonly Counts[]): Counts {
  const total = (name: keyof Counts): number => counts.reduce((sum, each) => sum + each[name], 0)
  return { passed: total('passed'), failed: total('failed') }
}

export function say(line: string): void {
  process.stdout.write(`${line}\n`)
}
