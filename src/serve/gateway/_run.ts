import { hash } from 'node:crypto'
import { MillraceError } from '../../errors/index.ts'
import type { JsonObject } from '../../schema/index.ts'
import { readRunFile, redact, runFolder, RunStore, type Provenance } from '../../store/index.ts'

export interface GatewayRun {
  readonly root: string
  readonly name: string
}

/**
 * Where a gateway keeps its sessions. A name is all that it takes to go on with them: which backends serve the models, and
 * how many requests go to them at once, may differ from one sitting to the next.
 */
const configDigest = hash('sha256', 'millrace gateway').slice(0, 16)

export interface OpenGatewayRun {
  /** Kept with a new run, without what is secret in it. */
  readonly config: JsonObject
  readonly secrets: readonly string[]
  readonly provenance: Provenance
  readonly signal?: AbortSignal | undefined
}

/** Opens the run of that name, or makes it. */
export async function openGatewayRun({ root, name }: GatewayRun, options: OpenGatewayRun): Promise<RunStore> {
  const { config, secrets, provenance, signal } = options
  const folder = runFolder(root, name)
  const existing = readRunFile(folder)
  if (existing && existing.config['kind'] !== 'gateway') {
    throw new MillraceError(
      'run_mismatch',
      `run ${name} belongs to an evaluation or a server of rollouts; choose another name for the gateway's run with --run`,
      { data: { run: name } },
    )
  }
  const create = {
    name,
    configDigest,
    config: redact({ kind: 'gateway', ...config }, secrets).value,
    provenance: { ...provenance },
  }
  return await RunStore.open({ folder, create, ...(signal && { signal }) })
}
