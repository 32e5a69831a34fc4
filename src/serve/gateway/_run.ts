import { hash } from 'node:crypto'
import { MillraceError } from '../../errors/index.ts'
import type { JsonObject } from '../../schema/index.ts'
import { readRunFile, redact, runFolder, RunStore, type Provenance, type RunFile } from '../../store/index.ts'

export interface GatewayRun {
  readonly root: string
  readonly name: string
}

/**
 * Where a gateway keeps its sessions. A name is all that it takes to go on with them: which backends serve the models, and
 * how many requests go to them at once, may differ from one sitting to the next.
 */
const configDigest = hash('sha256', 'millrace gateway').slice(0, 16)

/** What a run says of its gateway, and what of that is secret: it is not written down. */
export interface GatewayDescription {
  readonly config: JsonObject
  readonly secrets: readonly string[]
}

export interface OpenGatewayRun extends GatewayDescription {
  readonly provenance: Provenance
  readonly signal?: AbortSignal | undefined
}

/** Opens the run of that name, or makes it. */
export async function openGatewayRun(run: GatewayRun, options: OpenGatewayRun): Promise<RunStore> {
  const { provenance, signal } = options
  const folder = gatewayFolder(run)
  const create = { name: run.name, configDigest, config: described(options), provenance: { ...provenance } }
  return await RunStore.open({ folder, create, isSpooled: true, ...(signal && { signal }) })
}

/** Throws if the name is no name, or if another command has the run, or had it first. */
export function requireFreeRun(run: GatewayRun): void {
  RunStore.requireFree(gatewayFolder(run))
}

/** The folder of the run, which does not exist yet or is a gateway's. */
function gatewayFolder({ root, name }: GatewayRun): string {
  const folder = runFolder(root, name)
  const existing = readRunFile(folder)
  if (existing && existing.config['kind'] !== 'gateway') {
    throw new MillraceError(
      'run_mismatch',
      `run ${name} belongs to an evaluation or a server of rollouts; choose another name for the gateway's run with --run (run.name)`,
      { data: { run: name } },
    )
  }
  return folder
}

/** What it serves now: an earlier sitting says nothing about this one. */
export function describeGateway(store: RunStore, description: GatewayDescription): void {
  store.amend({ config: described(description) })
}

function described({ config, secrets }: GatewayDescription): RunFile['config'] {
  return redact({ kind: 'gateway', ...config }, secrets).value
}
