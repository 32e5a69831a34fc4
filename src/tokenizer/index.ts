export { ChatTemplate, type TemplateInput } from './chat-template.ts'
export { loadTokenizer, type LoadTokenizerOptions, type ModelTokenizer } from './load-tokenizer.ts'
export { Tokenizer } from './tokenizer.ts'
