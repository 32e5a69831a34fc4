import { AsyncLocalStorage } from 'node:async_hooks'
import { MillraceError } from '../errors/index.ts'
import { placeOfError } from '../kit/index.ts'
import type { SupervisorLink } from './_supervisor-link.ts'
import type { StrayError } from './stray-errors.ts'

/**
 * Which call the running code belongs to, through every await, timer and callback: a worker that ends by its own code can
 * then say in whose name that code ran.
 */
export const currentCall = new AsyncLocalStorage<number>()

/** By default Node would end a worker, and all rollouts on it, for a promise that one of them forgot. */
export function reportErrors(link: SupervisorLink): void {
  process.on('unhandledRejection', (reason) => link.send({ kind: 'stray-error', error: strayErrorOf(reason) }))
  let hasSpoken = false
  const sayLastWords = (error?: StrayError): void => {
    const call = currentCall.getStore()
    if (hasSpoken || (call === undefined && !error)) return
    hasSpoken = true
    link.send({ kind: 'last-words', ...(call !== undefined && { call }), ...(error && { error }) })
  }
  // After something thrown where nobody can catch it, nobody knows what still works.
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
