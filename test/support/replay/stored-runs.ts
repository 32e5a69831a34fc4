import { join } from 'node:path'
import { evaluate, RunReader, type EvaluateOptions, type Summary } from 'millrace'
import { ScriptedBackend, type Script } from 'millrace/testing'

/** A run that was made with a script for a model, and stays to be read. */
export async function storeRun(
  root: string,
  options: Omit<EvaluateOptions, 'model' | 'backends' | 'run'> & { readonly script: Script; readonly name?: string },
): Promise<{ readonly summary: Summary; readonly backend: ScriptedBackend; readonly folder: string }> {
  const { script, name = 'stored', ...rest } = options
  const backend = new ScriptedBackend(script)
  const summary = await evaluate({
    preflight: false,
    retries: 0,
    ...rest,
    model: scripted,
    backends: { scripted: [backend] },
    run: { root, name },
  }).summary()
  return { summary, backend, folder: join(root, name) }
}

/** Its backend is never asked: a scripted one stands in for it. */
export const scripted = {
  name: 'scripted',
  maxTries: 1,
  price: { input: 1, output: 1 },
  backends: [{ url: 'http://scripted.invalid' }],
}

export function openRun(root: string, name = 'stored'): RunReader {
  return RunReader.open(join(root, name))
}
