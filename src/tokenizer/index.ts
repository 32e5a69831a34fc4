export { ChatTemplate } from './chat-template.ts'
export { loadTokenizer, type ModelTokenizer } from './load-tokenizer.ts'
export { Tokenizer } from './tokenizer.ts'
export type { RenderSettings } from './bridge.ts'
export {
  checkTemplate,
  probeConversations,
  probeTexts,
  type ReasoningMarkers,
  type TemplateReport,
} from './check-template.ts'
