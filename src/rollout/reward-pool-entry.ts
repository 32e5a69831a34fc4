/** The entry of a reward thread: loads the environment once, then scores what it is sent. */
import { parentPort, workerData } from 'node:worker_threads'
import { loadEnvironment, scoreHeavy, type LoadedEnvironment } from '../env/index.ts'
import { MillraceError } from '../errors/index.ts'
import { dropStartVariables, ownCopy } from '../kit/index.ts'
import type { EnvironmentModule, FromRewardThread, ToRewardThread } from './reward-pool-messages.ts'

const port = parentPort
if (!port) throw new MillraceError('internal', 'this file is the entry of a reward thread')
const send = (message: FromRewardThread): void => port.postMessage(message)

dropStartVariables()
const { specifier, options } = workerData as EnvironmentModule
try {
  const loaded = await loadEnvironment(specifier, options)
  port.on('message', (question: ToRewardThread) => void answer(loaded, question))
  send({ kind: 'ready' })
} catch (error) {
  send({ kind: 'start-failed', error: MillraceError.from(error, 'env_load_failed').toWire() })
}

async function answer(loaded: LoadedEnvironment, { component, input }: ToRewardThread): Promise<void> {
  try {
    const score = await scoreHeavy(loaded.environment, component, { ...input, options: ownCopy(loaded.options) })
    // Throws for a score that cannot be cloned: a reward must not return that.
    send({ kind: 'scored', score })
  } catch (error) {
    send({ kind: 'failed', error: MillraceError.from(error, 'reward_failed').toWire() })
  }
}
