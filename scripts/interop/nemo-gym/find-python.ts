import { readdir } from 'node:fs/promises'
import { join } from 'node:path'
import { runProgram } from '../run-program.ts'

const askMs = 20_000
const oldest = [3, 12] as const
const names = ['python3', 'python3.12', 'python3.13', 'python3.14', 'python']

/** A Python that NeMo Gym runs in: the one that PYTHON names, one on the path, or one that pyenv has. */
export async function findPython(): Promise<string> {
  const { PYTHON } = process.env
  const seen: string[] = []
  for (const program of [...(PYTHON === undefined ? [] : [PYTHON]), ...names, ...(await pyenvPythons())]) {
    const version = await versionOf(program)
    if (!version) continue
    const [major, minor] = version
    if (major > oldest[0] || (major === oldest[0] && minor >= oldest[1])) return program
    seen.push(`${program} is ${version.join('.')}`)
  }
  const found = seen.length === 0 ? 'there is none' : seen.join(', ')
  throw new Error(
    `NeMo Gym 0.4.0 needs Python 3.12 or later: ${found}. Install one, name it in PYTHON, then run this again`,
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
  return versions.filter((name) => /^3\.1[2-9]/.test(name)).map((name) => join(folder, name, 'bin', 'python3'))
}
