import { join } from 'node:path'
import { Bench } from './bench.ts'
import { installAgents } from './agents/npm-agents.ts'
import { pageAgents } from './agents/page-agents.ts'
import { type Counts, installPython, runCase, runCases, say, sumOf } from './part.ts'

const here = import.meta.dirname
const clientsMs = 10 * 60_000

/** Official clients and agents as they ship talk to a gateway over simulators. */
export async function clients(folder: string): Promise<Counts> {
  await using ends = new AsyncDisposableStack()
  say('installing Python clients and frameworks')
  const python = await installPython(folder, join(here, 'requirements.txt'))
  say('installing agents from npm')
  const modules = await installAgents(join(folder, 'agents'))

  say('official Python clients, over a backend of each API')
  const eachApi = ends.use(await Bench.start(join(folder, 'clients'), 'each-api'))
  const counts = [await runPython(python, eachApi, ['anthropic_messages', 'openai_chat', 'openai_responses'])]
  say('Python frameworks, over a trainable Chat model')
  const frameworks = ends.use(await Bench.start(join(folder, 'frameworks'), 'policy'))
  counts.push(await runPython(python, frameworks, ['agent_frameworks']))
  say('agents of docs/agents-outside.md, over a trainable Chat model that reasons')
  const bench = ends.use(await Bench.start(join(folder, 'page'), 'reasoning-policy'))
  const paths = [join(modules, '.bin'), join(folder, 'venv', 'bin')]
  for (const { name, run } of await pageAgents({ bench, paths, modules, folder })) {
    counts.push(await runCase(name, run))
  }
  return sumOf(counts)
}

/** Runs modules of cases. */
async function runPython(python: string, bench: Bench, modules: readonly string[]): Promise<Counts> {
  const client = join(here, '..', '..', 'clients', 'python', 'src')
  const env = { ...process.env, ...bench.env, PYTHONPATH: client }
  // -B: no folder of compiled modules beside the sources.
  return await runCases(python, ['-B', join(here, 'main.py'), ...modules], { env, timeoutMs: clientsMs })
}
