import { execFile } from 'node:child_process'
import { mkdir, mkdtemp, rename, rm } from 'node:fs/promises'
import { join } from 'node:path'
import { promisify } from 'node:util'

const run = promisify(execFile)
const root = join(import.meta.dirname, '..', '..')
const cache = join(root, 'node_modules', '.cache', 'millrace-python')
const maxBuffer = 64 * 1024 * 1024

/** What the package in `clients/python` needs. */
const check = 'import sys; assert sys.version_info >= (3, 10), sys.version; import numpy'

/**
 * Runs a script with the package of `clients/python`. NumPy is the machine's own, or is installed once into `node_modules/.cache`,
 * which takes seconds.
 */
export async function runPython(words: readonly string[]): Promise<string> {
  const env = { ...process.env, PYTHONPATH: await importPath(), OMP_NUM_THREADS: '1' }
  // -B: no folders of compiled modules beside the sources.
  const { stdout } = await run('python3', ['-B', ...words], { maxBuffer, env })
  return stdout
}

let found: Promise<string> | undefined

function importPath(): Promise<string> {
  found ??= findImportPath()
  return found
}

async function findImportPath(): Promise<string> {
  const sources = join(root, 'clients', 'python', 'src')
  if (await works(sources)) return sources
  const { stdout: version } = await run('python3', ['-c', 'import sys; print("%d.%d" % sys.version_info[:2])']).catch(
    needs,
  )
  const folder = join(cache, version.trim())
  const both = `${sources}:${folder}`
  if (!(await works(both))) await installNumPy(folder)
  if (!(await works(both))) throw needs(new Error(`python3 is version ${version.trim()}`))
  return both
}

async function works(path: string): Promise<boolean> {
  const env = { ...process.env, PYTHONPATH: path }
  return await run('python3', ['-B', '-c', check], { env }).then(
    () => true,
    () => false,
  )
}

async function installNumPy(folder: string): Promise<void> {
  await mkdir(cache, { recursive: true })
  const temporary = await mkdtemp(join(cache, 'new-'))
  const pip = ['-m', 'pip', 'install', '--quiet', '--disable-pip-version-check', '--target', temporary, 'numpy']
  await run('python3', pip, { maxBuffer }).catch(needs)
  await rm(folder, { recursive: true, force: true })
  // Whole or not at all. Another process may have been faster.
  await rename(temporary, folder).catch(() => rm(temporary, { recursive: true }))
}

function needs(cause: unknown): never {
  const message =
    'the Python package needs python3, version 3.10 or later, with NumPy, or with pip to install it; ' +
    'install these (python3, python3-pip), then run this again'
  throw new Error(message, { cause })
}
