/** Rollouts of one environment with tool servers, driven by a script in place of a model. */
import { defineEnvironment, evaluate, z, type Environment, type EvaluateOptions, type ServerConfig } from 'millrace'
import { ScriptedBackend, temporaryRuns, type Script } from 'millrace/testing'
import { RunReader } from '../../../src/store/index.ts'

type Spec = Partial<Pick<Environment, 'agent' | 'update' | 'reward' | 'setup' | 'teardown' | 'limits' | 'tools'>>

/** As many tasks as asked for, told apart by their prompt: `task 0`, `task 1`. */
export function environmentWith(
  mcpServers: Readonly<Record<string, ServerConfig>>,
  spec: Spec & { readonly count?: number } = {},
): Environment {
  const { count = 1, ...rest } = spec
  return defineEnvironment({
    name: 'with-servers',
    task: z.object({ n: z.number() }),
    tasks: () => Array.from({ length: count }, (_, n) => ({ n })),
    prompt: ({ task }) => `task ${task.n}`,
    mcpServers,
    reward: () => 1,
    ...rest,
  })
}

type Options = Omit<EvaluateOptions, 'model' | 'backends' | 'environment'>

/** A run in a folder of its own. Nothing is asked of the model, or tried again, that the script does not say. */
export async function startRollouts(environment: Environment, script: Script, options: Options = {}) {
  const runs = await temporaryRuns()
  const evaluation = evaluate({
    environment,
    preflight: false,
    retries: 0,
    ...options,
    model: { name: 'scripted', maxTries: 1, backends: [{ url: 'http://scripted.invalid' }] },
    backends: { scripted: [new ScriptedBackend(script)] },
    run: { root: runs.root },
  })
  return {
    evaluation,
    /** What was stored, once it has ended. */
    reader: async () => RunReader.open((await evaluation.summary()).folder),
    [Symbol.asyncDispose]: () => runs[Symbol.asyncDispose](),
  }
}
