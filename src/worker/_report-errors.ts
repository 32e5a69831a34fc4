import { AsyncLocalStorage } from 'node:async_hooks'
import { MillraceError } from '../errors/index.ts'
import { placeOfError } from '../kit/index.ts'
import type { SupervisorLink } from './_supervisor-link.ts'
import type { StrayError } from './stray-errors.ts'

/**
 * The call that the running code belongs to, through every await, timer and callback: a worker that its own code ends can
 * then say which call that was.
 */
export const currentCall = new AsyncLocalStorage<number>()

/** Reports unhandled rejections. By default Node would end the worker, and all its rollouts, for one forgotten promise. */
export function reportErrors(link: SupervisorLink): void {
  process.on('unhandledRejection', (reason) => link.send({ kind: 'stray-error', error: strayErrorOf(reason) }))
  let hasSpoken = false
  const sayLastWords = (error?: StrayError): void => {
    const call = currentCall.getStore()
    if (hasSpoken || (call === undefined && !error)) return
    hasSpoken = true
    link.send({ kind: 'last-words', ...(call !== undefined && { call }), ...(error && { error }) })
  }
  // After an uncaught exception nobody knows what still works, so the worker ends.
  process.on('uncaughtException', (thrown) => {
    sayLastWords(strayErrorOf(thrown))
    process.exit(1)
  })
  process.on('exit', () => sayLastWords())
}

function strayErrorOf(thrown: unknown): StrayError {
  const { rawMessage: message } = MillraceError.from(thrown, 'agent_failed')
  const place = placeOfError(thrown)
  return { message, ...(place !== undefined && { place }) }
}
