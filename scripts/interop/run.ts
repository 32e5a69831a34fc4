/**
 * `npm run interop`: official clients and agents as they ship talk to a gateway over simulators. It installs them into a
 * temporary folder, which needs npm, python3 with venv, and registries that npm and pip can reach; without them it says so and
 * fails. It takes a few minutes. Every program has a time limit, and ends with everything that it started.
 */
import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { Bench } from './bench.ts'
import { agentPackages, pageAgents } from './page-agents.ts'
import { runProgram } from './run-program.ts'

const here = import.meta.dirname
const installMs = 15 * 60_000
const clientsMs = 10 * 60_000

interface Counts {
  readonly passed: number
  readonly failed: number
}

process.exitCode = await main()

async function main(): Promise<number> {
  await using ends = new AsyncDisposableStack()
  const folder = await mkdtemp(join(tmpdir(), 'millrace-interop-'))
  ends.defer(() => rm(folder, { recursive: true, force: true }))

  say('installing Python clients and frameworks')
  const python = join(folder, 'venv', 'bin', 'python')
  const venv = await runProgram('python3', ['-m', 'venv', join(folder, 'venv')], { timeoutMs: installMs })
  if (venv.code !== 0) return failed('there is no python3 with venv here; install it (python3, python3-venv)', venv)
  const requirements = ['-r', join(here, 'requirements.txt')]
  const pip = ['-m', 'pip', 'install', '--quiet', '--disable-pip-version-check', ...requirements]
  const installed = await runProgram(python, pip, { timeoutMs: installMs })
  if (installed.code !== 0) return failed('pip could not install; check that it reaches PyPI or its mirror', installed)

  say('installing agents from npm')
  const agents = join(folder, 'agents')
  const npm = await installAgents(agents)
  if (npm.code !== 0) return failed('npm could not install; check that it reaches its registry', npm)

  say('official Python clients, over a backend of each API')
  const clients = ends.use(await Bench.start(join(folder, 'clients'), 'each-api'))
  const sums = [await runPython(python, clients, ['anthropic_messages', 'openai_chat', 'openai_responses'])]
  say('Python frameworks, over a trainable Chat model')
  const frameworks = ends.use(await Bench.start(join(folder, 'frameworks'), 'policy'))
  sums.push(await runPython(python, frameworks, ['agent_frameworks']))
  say('agents of docs/agents-outside.md, over a trainable Chat model that reasons')
  const bench = ends.use(await Bench.start(join(folder, 'page'), 'reasoning-policy'))
  const modules = join(agents, 'node_modules')
  const paths = [join(modules, '.bin'), join(folder, 'venv', 'bin')]
  for (const { name, run } of await pageAgents({ bench, paths, modules, folder })) {
    sums.push(await runCase(name, run))
  }
  const [passed, failures] = [sumOf(sums, 'passed'), sumOf(sums, 'failed')]
  say(`${passed} passed, ${failures} failed`)
  return failures === 0 ? 0 : 1
}

async function installAgents(folder: string): ReturnType<typeof runProgram> {
  const names = Object.keys(agentPackages)
  // Install scripts put the program for this machine in its place.
  const manifest = {
    private: true,
    dependencies: agentPackages,
    allowScripts: Object.fromEntries(names.map((n) => [n, true])),
  }
  await mkdir(folder)
  await writeFile(join(folder, 'package.json'), JSON.stringify(manifest))
  const words = ['install', '--no-audit', '--no-fund', '--no-progress', '--loglevel=error']
  return await runProgram('npm', words, { cwd: folder, timeoutMs: installMs })
}

/** Runs modules of cases. Their last line has the sums. */
async function runPython(python: string, bench: Bench, modules: readonly string[]): Promise<Counts> {
  const env = { ...process.env, ...bench.env }
  // -B: no folder of compiled modules beside the sources.
  const words = ['-B', join(here, 'main.py'), ...modules]
  const { code, output } = await runProgram(python, words, { env, timeoutMs: clientsMs, isShown: true })
  const [, passed = '0', failures = '0'] = /^(\d+) passed, (\d+) failed$/m.exec(output) ?? []
  const counts = { passed: Number(passed), failed: Number(failures) }
  return code !== 0 && counts.failed === 0 ? { ...counts, failed: 1 } : counts
}

async function runCase(name: string, run: () => Promise<string>): Promise<Counts> {
  try {
    say(`  ok      ${name}: ${await run()}`)
    return { passed: 1, failed: 0 }
  } catch (error) {
    say(`  FAILED  ${name}\n${error instanceof Error ? error.message : String(error)}`)
    return { passed: 0, failed: 1 }
  }
}

function sumOf(counts: readonly Counts[], name: keyof Counts): number {
  return counts.reduce((sum, each) => sum + each[name], 0)
}

function failed(why: string, { output }: { readonly output: string }): number {
  process.stderr.write(`${output}\ninterop: ${why}, then run this again\n`)
  return 1
}

function say(line: string): void {
  process.stdout.write(`${line}\n`)
}
