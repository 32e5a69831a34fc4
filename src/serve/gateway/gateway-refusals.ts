import { EventChannel } from '../../kit/index.ts'
import type { MillraceError } from '../../errors/index.ts'
import type { ClientApi } from '../../schema/index.ts'

/**
 * A request for a model that the door itself refused: no key, or a body that is too large, packed or does not arrive in time.
 * Also one whose client hung up before all of it had arrived: its error is `cancelled`.
 */
export interface GatewayRefusal {
  /** Of the gateway's run: there may be several gateways in a process. */
  readonly folder: string
  readonly api: ClientApi
  readonly requestId: string
  readonly status: number
  /** From its headers to here. */
  readonly ms: number
  readonly error: MillraceError
}

export const gatewayRefusals = new EventChannel<GatewayRefusal>('millrace:gateway-refusal')
