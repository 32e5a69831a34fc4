import { join } from 'node:path'
import { installAgents } from './npm-agents.ts'
import { type Counts, runCase, say, sumOf } from '../part.ts'
import { externalAgents } from './external-agents.ts'
import { ExternalBench } from './external-bench.ts'
import { cancelled, killed, recorded } from './external-cases.ts'

/** `external` with Claude Code and Codex from npm, with a Python agent and with one of bash and curl, against the simulator. */
export async function agents(folder: string): Promise<Counts> {
  say('installing Claude Code and Codex from npm')
  const cache = process.env['MILLRACE_INTEROP_CACHE'] ?? folder
  const packages = ['@anthropic-ai/claude-code', '@openai/codex'] as const
  const modules = await installAgents(join(cache, 'external-agents'), packages)
  const counts: Counts[] = []
  for (const agent of await externalAgents()) {
    const place = join(folder, agent.name.replaceAll(' ', '-'))
    await using bench = await ExternalBench.open(place, modules)
    // Its tokens do not survive decoding and encoding: without the flag, every later turn drifts.
    await using lossy = await ExternalBench.open(`${place}-exact`, modules, 'lossy')
    counts.push(await runCase(`${agent.name}, recorded`, () => recorded(agent, bench)))
    counts.push(await runCase(`${agent.name}, exact tokens`, () => recorded(agent, lossy, '--exact-tokens')))
    counts.push(await runCase(`${agent.name}, cancelled`, () => cancelled(agent, bench)))
    counts.push(await runCase(`${agent.name}, and Millrace killed`, () => killed(agent, bench)))
  }
  return sumOf(counts)
}
