import type { en } from "./en";

/** 控制台的中文文案。 */
export const zh: Record<keyof typeof en, string> = {
    "app.skip": "跳到正文",
    "app.menu": "菜单",
    "app.home": "Dragoman，对话",
    "nav.label": "导航",
    "nav.conversations": "对话",
    "nav.lens": "协议透镜",
    "nav.memories": "记忆",
    "nav.keys": "API 密钥",
    "nav.schedules": "定时任务",
    "nav.attachments": "附件",
    "nav.health": "服务器状态",

    "theme.label": "主题：{theme}",
    "theme.auto": "跟随系统",
    "theme.light": "浅色",
    "theme.dark": "深色",
    "language.switch": "EN",
    "language.label": "语言：切换到英文",

    "action.cancel": "取消",
    "action.close": "关闭",
    "action.copy": "复制",
    "action.copied": "已复制",
    "action.create": "创建",
    "action.delete": "删除",
    "action.edit": "编辑",
    "action.retry": "重试",
    "action.save": "保存",
    "action.search": "搜索",
    "action.dismiss": "关闭",
    "field.optional": "可选",

    "state.loading": "加载中…",
    "state.failed": "操作失败",

    "key.title": "请输入 API 密钥",
    "key.why": "此服务器需要密钥。密钥只保存在本浏览器中，也只会发送给此服务器。",
    "key.field": "API 密钥",
    "key.hint": "用 “dragoman keys create --name 名称” 创建密钥。",
    "key.wrong": "服务器不认识这个密钥。",
    "key.use": "使用此密钥",
    "key.forget": "移除密钥",

    "error.offline": "无法连接服务器。",
    "error.status": "服务器返回 {status}。",
    "error.reference": "参考编号 {reference}",
    "error.page": "页面的这一部分无法显示。",
};
