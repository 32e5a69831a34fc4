import { beforeAll } from 'vitest'
import { GatewayOverSimulator, type StartOptions } from './_gateway-over-simulator.ts'

/**
 * One gateway for all tests of a `describe`, because a start takes far longer than a test. Each test has a session of its
 * own there, and sessions know nothing of each other.
 */
export function sharedGateway(options: StartOptions): () => GatewayOverSimulator {
  let gateway: GatewayOverSimulator | undefined
  beforeAll(async () => {
    const started = await GatewayOverSimulator.start(options)
    gateway = started
    return () => started[Symbol.asyncDispose]()
  })
  return () => {
    if (!gateway) throw new Error('the gateway is there only while tests run')
    return gateway
  }
}
