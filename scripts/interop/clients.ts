import { mkdir, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { Bench } from './bench.ts'
import { agentPackages, pageAgents } from './page-agents.ts'
import { check, type Counts, installMs, installPython, runCase, runCases, say, sumOf } from './part.ts'
import { runProgram } from './run-program.ts'

const here = import.meta.dirname
const clientsMs = 10 * 60_000

/** Official clients and agents as they ship talk to a gateway over simulators. */
export async function clients(folder: string): Promise<Counts> {
  await using ends = new AsyncDisposableStack()
  say('installing Python clients and frameworks')
  const python = await installPython(folder, join(here, 'requirements.txt'))
  say('installing agents from npm')
  const agents = join(folder, 'agents')
  check(await installAgents(agents), 'npm could not install; check that it reaches its registry')

  say('official Python clients, over a backend of each API')
  const eachApi = ends.use(await Bench.start(join(folder, 'clients'), 'each-api'))
  const counts = [await runPython(python, eachApi, ['anthropic_messages', 'openai_chat', 'openai_responses'])]
  say('Python frameworks, over a trainable Chat model')
  const frameworks = ends.use(await Bench.start(join(folder, 'frameworks'), 'policy'))
  counts.push(await runPython(python, frameworks, ['agent_frameworks']))
  say('agents of docs/agents-outside.md, over a trainable Chat model that reasons')
  const bench = ends.use(await Bench.start(join(folder, 'page'), 'reasoning-policy'))
  const modules = join(agents, 'node_modules')
  const paths = [join(modules, '.bin'), join(folder, 'venv', 'bin')]
  for (const { name, run } of await pageAgents({ bench, paths, modules, folder })) {
    counts.push(await runCase(name, run))
  }
  return sumOf(counts)
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

/** Runs modules of cases. */
async function runPython(python: string, bench: Bench, modules: readonly string[]): Promise<Counts> {
  const client = join(here, '..', '..', 'clients', 'python', 'src')
  const env = { ...process.env, ...bench.env, PYTHONPATH: client }
  // -B: no folder of compiled modules beside the sources.
  return await runCases(python, ['-B', join(here, 'main.py'), ...modules], { env, timeoutMs: clientsMs })
}
