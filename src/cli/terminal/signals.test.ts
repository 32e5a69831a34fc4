import { EventEmitter } from 'node:events'
import { expect, test } from 'vitest'
import { Interrupts } from './signals.ts'

test.each([
  ['SIGINT', 130],
  ['SIGTERM', 143],
  ['SIGHUP', 129],
])('%s drains, the next signal stops, and a third is not caught', (first, exitCode) => {
  const events = new EventEmitter()
  const said: string[] = []
  using interrupts = new Interrupts(events, { drain: () => said.push('drain'), stop: () => said.push('stop') })
  expect(interrupts.exitCode).toBeUndefined()
  events.emit(first)
  events.emit('SIGINT')
  expect(said).toEqual(['drain', 'stop'])
  expect(events.emit('SIGINT') || events.emit('SIGTERM')).toBe(false)
  expect(interrupts.exitCode).toBe(exitCode)
})

test('repeated hangups of a closed terminal count as one', () => {
  const events = new EventEmitter()
  const said: string[] = []
  using _interrupts = new Interrupts(events, { drain: () => said.push('drain'), stop: () => said.push('stop') })
  events.emit('SIGHUP')
  events.emit('SIGHUP')
  events.emit('SIGHUP')
  expect(said).toEqual(['drain'])
  events.emit('SIGTERM')
  // It is still caught: what stops now must not be cut off because the terminal goes.
  expect(events.emit('SIGHUP')).toBe(true)
  expect(said).toEqual(['drain', 'stop'])
})
