import { expect, test } from 'vitest'
import { SingleFlight } from './single-flight.ts'

const never = new AbortController().signal

/** Work that ends when the test says so, or when it is stopped. */
function flightWith() {
  const end = Promise.withResolvers<string>()
  const stopped: unknown[] = []
  const flight = new SingleFlight(never, (signal) => {
    signal.addEventListener('abort', () => {
      stopped.push(signal.reason)
      end.reject(signal.reason)
    })
    return end.promise
  })
  return { flight, stopped, end: () => end.resolve('there') }
}

test('work requested with keep() continues after all its callers have left', async () => {
  const { flight, stopped, end } = flightWith()
  const [joining, keeping] = [new AbortController(), new AbortController()]
  const joined = flight.join(joining.signal)
  const kept = flight.keep(keeping.signal)
  joining.abort('left')
  await expect(joined).rejects.toBe('left')
  keeping.abort('left as well')
  await expect(kept).rejects.toBe('left as well')
  expect([stopped, flight.isAbandoned]).toEqual([[], false])
  end()
  expect(await flight.join()).toBe('there')
})

test('work without callers is stopped by the last caller to leave, which waits for its end', async () => {
  const { flight, stopped } = flightWith()
  const [first, last] = [new AbortController(), new AbortController()]
  const joined = [flight.join(first.signal), flight.join(last.signal)]
  first.abort('first')
  await expect(joined[0]).rejects.toBe('first')
  expect(stopped).toEqual([])
  last.abort('last')
  await expect(joined[1]).rejects.toBe('last')
  expect([stopped, flight.isAbandoned]).toEqual([['last'], true])
})

test('a caller that aborted before it joins does not keep the work running', async () => {
  const started = Promise.withResolvers<AbortSignal>()
  const flight = new SingleFlight(never, async (signal) => {
    started.resolve(signal)
    signal.throwIfAborted()
  })
  await expect(flight.join(AbortSignal.abort('left'))).rejects.toBe('left')
  expect([(await started.promise).aborted, flight.isAbandoned]).toEqual([true, true])
})
