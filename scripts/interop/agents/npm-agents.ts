import { mkdir, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { check, installMs } from '../part.ts'
import { runProgram } from '../run-program.ts'

/** The packages of npm that docs/agents-outside.md and docs/agents.md are tried with. */
export const agentPackages = {
  '@anthropic-ai/claude-code': '2.1.326',
  '@mastra/core': '1.71.0',
  '@openai/codex': '0.169.0',
  'opencode-ai': '1.18.33',
  zod: '4.6.7',
} as const

type AgentPackage = keyof typeof agentPackages

/** Installs some of them, or all, into this folder. Returns its `node_modules`. */
export async function installAgents(
  folder: string,
  names = Object.keys(agentPackages) as readonly AgentPackage[],
): Promise<string> {
  // Install scripts put the program for this machine in its place.
  const manifest = {
    private: true,
    dependencies: Object.fromEntries(names.map((name) => [name, agentPackages[name]])),
    allowScripts: Object.fromEntries(names.map((name) => [name, true])),
  }
  await mkdir(folder, { recursive: true })
  await writeFile(join(folder, 'package.json'), JSON.stringify(manifest))
  const words = ['install', '--no-audit', '--no-fund', '--no-progress', '--loglevel=error']
  const installed = await runProgram('npm', words, { cwd: folder, timeoutMs: installMs })
  check(installed, 'npm could not install; check that it reaches its registry')
  return join(folder, 'node_modules')
}
