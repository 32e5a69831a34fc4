/** A Chromium from npm, and Playwright's server on top of it. */
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import type { ServerConfig } from 'millrace'
import { packageFile } from './npm-servers.ts'
import { isRunning } from './processes.ts'
import { temporaryFolder } from './temporary-folder.ts'

const unpack = "import chromium from '@sparticuz/chromium'; process.stdout.write(await chromium.executablePath())"

/** Unpacks the browser, some 200 MB, into a folder that is gone when the scope ends. */
export async function unpackedBrowser() {
  const folder = await temporaryFolder()
  // It unpacks to the folder for temporary files, which only a process of its own can have for itself.
  const child = spawn(process.execPath, ['--input-type=module', '-e', unpack], {
    cwd: packageFile('..'),
    env: { ...process.env, TMPDIR: folder.path },
    stdio: ['ignore', 'pipe', 'pipe'],
  })
  const written = { stdout: '', stderr: '' }
  child.stdout.setEncoding('utf8').on('data', (text: string) => (written.stdout += text))
  child.stderr.setEncoding('utf8').on('data', (text: string) => (written.stderr += text))
  const [code] = (await once(child, 'close')) as [number | null]
  if (code !== 0) throw new Error(`@sparticuz/chromium could not be unpacked: ${written.stderr}`)
  return {
    executable: written.stdout,
    config: playwright(written.stdout, folder.path),
    [Symbol.asyncDispose]: () => folder[Symbol.asyncDispose](),
  }
}

function playwright(executable: string, folder: string): ServerConfig {
  const flags = ['--executable-path', executable, '--no-sandbox', '--headless', '--isolated']
  return {
    command: process.execPath,
    args: [packageFile('@playwright/mcp/cli.js'), ...flags, '--output-dir', join(folder, 'output')],
    // Its profiles go with the folder.
    env: { TMPDIR: folder },
    cwd: folder,
    startTimeoutMs: 60_000,
  }
}

/** Every process that runs a program, whoever its parent is by now. */
export function processesOf(executable: string): number[] {
  return readdirSync('/proc')
    .map(Number)
    .filter((pid) => pid > 0 && commandOf(pid).startsWith(executable) && isRunning(pid))
}

// A process may be gone before it is looked at.
function commandOf(pid: number): string {
  try {
    return readFileSync(`/proc/${pid}/cmdline`, 'utf8')
  } catch {
    return ''
  }
}
