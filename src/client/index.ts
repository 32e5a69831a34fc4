export { BackendsFailed, type GatewayClientOptions } from './gateway-http.ts'
export {
  type BackendAnswer,
  GatewayClient,
  type ListedBackend,
  type PauseReply,
  type WeightUpdate,
} from './gateway-client.ts'
