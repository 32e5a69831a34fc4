/**
 * Opens the gateway of a folder while this process can open no file any more, and again when it can: what became of both is
 * printed. For a process of its own, with few descriptors.
 */
import { closeSync, openSync } from 'node:fs'
import { join } from 'node:path'
import { Gateway, gatewayEvents } from '../../../src/gateway/index.ts'
import { RunStore } from '../../../src/store/index.ts'

const [, , folder = ''] = process.argv
await using store = await RunStore.open({ folder: join(folder, 'run') })
const told: unknown[] = []
using _listening = gatewayEvents.subscribe((event) => told.push(event.kind))

async function start(): Promise<void> {
  const adminKeys = [{ tenant: 'acme', key: 'an-admin-key-for-tests' }]
  await using gateway = await Gateway.open({ env: {}, adminKeys, store, models: [], awaited: 1 })
  told.push(gateway.status().openSessions)
}

const taken: number[] = []
try {
  for (;;) taken.push(openSync('/dev/null', 'r'))
} catch (error) {
  told.push((error as NodeJS.ErrnoException).code)
}
await start().catch(({ code, message }: { code: string; message: string }) => told.push(code, message))
for (const descriptor of taken) closeSync(descriptor)
await start()
process.stdout.write(JSON.stringify(told))
