import { writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { check, type Counts, installPython, runCase, runCases, say, sumOf } from './part.ts'
import { runProgram } from './run-program.ts'

const clientFolder = join(import.meta.dirname, '..', '..', 'clients', 'python')
const testsMs = 10 * 60_000

/** The Python package as pip installs it: its types, and its tests, most of them against servers that they start and kill. */
export async function python(folder: string): Promise<Counts> {
  say('installing the Python package, and mypy')
  const requirements = join(folder, 'requirements.txt')
  await writeFile(requirements, `${clientFolder}\nmypy==2.4.1\n`)
  const program = await installPython(folder, requirements)
  // No files beside the sources.
  const env = { ...process.env, PYTHONDONTWRITEBYTECODE: '1', MYPY_CACHE_DIR: join(folder, 'mypy') }
  const options = { timeoutMs: testsMs, env }
  const types = await runCase('mypy --strict', async () => {
    const { code, output } = await runProgram(program, ['-m', 'mypy'], { ...options, cwd: clientFolder })
    check({ code, output }, 'correct the types')
    return output.trim()
  })
  const tests = await runCases(program, ['-X', 'dev', '-W', 'error', join(clientFolder, 'tests', 'run.py')], options)
  return sumOf([types, tests])
}
