import { readdir } from 'node:fs/promises'
import { join } from 'node:path'
import { runProgram } from './run-program.ts'

const askMs = 20_000
const names = ['python3', 'python3.11', 'python3.12', 'python3.13', 'python3.14', 'python']

interface PythonNeeds {
  readonly package: string
  /** The minor versions of Python 3 that it runs in. */
  readonly oldest: number
  readonly newest: number
}

/** A Python that a package runs in: the one that PYTHON names, one on the path, or one that pyenv has. */
export async function findPython({ package: name, oldest, newest }: PythonNeeds): Promise<string> {
  const { PYTHON } = process.env
  const seen: string[] = []
  for (const program of [...(PYTHON === undefined ? [] : [PYTHON]), ...names, ...(await pyenvPythons())]) {
    const version = await versionOf(program)
    if (!version) continue
    const [major, minor] = version
    if (major === 3 && minor >= oldest && minor <= newest) return program
    seen.push(`${program} is ${version.join('.')}`)
  }
  const found = seen.length === 0 ? 'there is none' : seen.join(', ')
  throw new Error(
    `${name} needs Python 3.${oldest} to 3.${newest}: ${found}. Install one, name it in PYTHON, then run this again`,
  )
}

async function versionOf(program: string): Promise<readonly [major: number, minor: number] | undefined> {
  // A name of pyenv's may be there without a Python behind it.
  const words = ['-c', 'import sys, venv; print(*sys.version_info[:2])']
  const { code, output } = await runProgram(program, words, { timeoutMs: askMs })
  const [, major, minor] = /^(\d+) (\d+)$/m.exec(output) ?? []
  return code === 0 && major !== undefined ? [Number(major), Number(minor)] : undefined
}

async function pyenvPythons(): Promise<string[]> {
  const { code, output } = await runProgram('pyenv', ['root'], { timeoutMs: askMs })
  if (code !== 0) return []
  const folder = join(output.trim(), 'versions')
  const versions = await readdir(folder).catch(() => [])
  return versions.filter((name) => /^3\.1\d/.test(name)).map((name) => join(folder, name, 'bin', 'python3'))
}
