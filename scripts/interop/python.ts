import { writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { check, type Counts, installPython, runCase, runCases, say, sumOf } from './part.ts'
import { runProgram } from './run-program.ts'

const clientFolder = join(import.meta.dirname, '..', '..', 'clients', 'python')
const testsMs = 10 * 60_000

/** The Python package as pip installs it: its style, its types, and its tests, against servers that they start and kill. */
export async function python(folder: string): Promise<Counts> {
  say('installing the Python package, mypy and ruff')
  const requirements = join(folder, 'requirements.txt')
  await writeFile(requirements, `${clientFolder}\nmypy==2.4.1\nruff==0.17.5\n`)
  const program = await installPython(folder, requirements)
  // No files beside the sources.
  const env = { ...process.env, PYTHONDONTWRITEBYTECODE: '1', MYPY_CACHE_DIR: join(folder, 'mypy') }
  const options = { timeoutMs: testsMs, env }
  const counts = []
  for (const words of [['mypy'], ['ruff', 'check', '--no-cache'], ['ruff', 'format', '--check', '--no-cache']]) {
    const tool = async (): Promise<string> => {
      const result = await runProgram(program, ['-m', ...words], { ...options, cwd: clientFolder })
      check(result, `correct what ${words.join(' ')} found`)
      return result.output.trim()
    }
    counts.push(await runCase(words.join(' '), tool))
  }
  const tests = await runCases(program, ['-X', 'dev', '-W', 'error', join(clientFolder, 'tests', 'run.py')], options)
  return sumOf([...counts, tests])
}
